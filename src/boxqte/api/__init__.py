"""The door for Python: functions that check what they are given, and objects with everything that can be asked of them."""
