"""The page: files that a browser gets as they lie here, and the routes that give them. See docs/page.md."""
