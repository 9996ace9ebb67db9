"""Getting models: a catalogue of known files, and downloads that can be resumed and are checked."""
