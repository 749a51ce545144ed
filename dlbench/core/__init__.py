"""Nouns that both towers stand on: standard library only."""
