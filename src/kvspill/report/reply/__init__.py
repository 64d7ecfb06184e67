"""The answer to "can N users be served?": as text and as data, with what it rests on and what was asked."""
