"""Further tasks: questions about images, referring expressions, translation, and captioned videos."""
