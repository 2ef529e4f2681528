"""What answers: head, personal model, views, bridges, prior."""
