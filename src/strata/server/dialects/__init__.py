"""One folder for each dialect: what goes in, what comes out. None of them knows the engine."""
