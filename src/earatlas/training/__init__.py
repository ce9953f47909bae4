"""Learning a head: charts from directions to cues, and how sure they may be."""
