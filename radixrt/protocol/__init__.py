"""The plain data that parts share. Import the module that holds what you need; nothing is re-exported here."""
