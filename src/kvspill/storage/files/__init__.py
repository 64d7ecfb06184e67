"""The files backend: where an object lies (a place) times who moves it (a mover)."""
