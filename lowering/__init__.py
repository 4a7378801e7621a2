"""Ahead of time: IR to members to artifacts to a pack. Import the modules you need from here."""
