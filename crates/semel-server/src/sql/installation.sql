-- Names this database among all, the same on every start and after a failover: the cluster and the database in it.
SELECT format('%s-%s', system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()))
FROM pg_control_system()
