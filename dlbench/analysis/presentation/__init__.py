"""Words, columns and figures, as data: what tables, sentences, pages and files show."""
