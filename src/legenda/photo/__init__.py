"""The packaged captioner of photographs: its regions, its things, and the choice among its captions."""
