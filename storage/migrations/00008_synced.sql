-- What a machine that loses power may not take back. A merged or mutated part is
-- synced before the parts that it replaces are deleted. The heads of the sessions'
-- chains are read from evidence_chain while an auditor works, also from a server
-- that lost power meanwhile: a head that is missing there would begin its chain
-- anew, so that table is synced as evidence is. The other derived tables go without,
-- as before.

-- +goose NO TRANSACTION
-- +goose Up

ALTER TABLE evidence MODIFY SETTING min_rows_to_fsync_after_merge = 1;
ALTER TABLE tree_hashes MODIFY SETTING min_rows_to_fsync_after_merge = 1;
ALTER TABLE checkpoints MODIFY SETTING min_rows_to_fsync_after_merge = 1;
ALTER TABLE evidence_chain MODIFY SETTING fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

-- +goose Down
ALTER TABLE evidence_chain RESET SETTING fsync_after_insert, fsync_part_directory, min_rows_to_fsync_after_merge;
ALTER TABLE checkpoints RESET SETTING min_rows_to_fsync_after_merge;
ALTER TABLE tree_hashes RESET SETTING min_rows_to_fsync_after_merge;
ALTER TABLE evidence RESET SETTING min_rows_to_fsync_after_merge;
