SELECT id, url, body, remaining FROM webhooks WHERE remaining > 0
