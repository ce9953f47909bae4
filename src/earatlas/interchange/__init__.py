"""Formats and protocols of other programs: RTTM, DCASE, OSC and Lab Streaming Layer."""
