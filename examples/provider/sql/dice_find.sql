SELECT chosen, thrown FROM dice WHERE kind = ?1
