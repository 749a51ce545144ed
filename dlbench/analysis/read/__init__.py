"""Result files to rows."""
