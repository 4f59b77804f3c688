"""Theory, pure: what methods take where communication costs nothing."""
