"""The extractor `photo`, and what captions make of its regions."""
