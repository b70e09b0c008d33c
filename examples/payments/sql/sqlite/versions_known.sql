SELECT count(*) FROM pragma_table_info('payments_accounts') WHERE name = 'version'
