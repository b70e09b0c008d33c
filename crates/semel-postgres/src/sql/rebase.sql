SELECT from_incarnation, to_incarnation, events FROM semel.rebase($1, $2, $3)
