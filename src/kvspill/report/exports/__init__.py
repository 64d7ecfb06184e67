"""What a run did, in the formats of others: fio jobs and replays, and traces."""
