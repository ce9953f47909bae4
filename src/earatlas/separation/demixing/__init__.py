"""From masks to sound: both ears of every source."""
