"""The numbers of every value on the probe, sketched, and which reads of them are rounded."""
