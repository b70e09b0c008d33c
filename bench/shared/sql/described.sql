SELECT format('PostgreSQL %s, fsync %s, synchronous_commit %s, shared_buffers %s, max_wal_size %s',
              current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
              current_setting('shared_buffers'), current_setting('max_wal_size'))
