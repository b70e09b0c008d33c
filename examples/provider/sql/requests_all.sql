SELECT path, key, received FROM requests
