-- name: list_hooks
SELECT id, url, organization, events, signed, token FROM hooks ORDER BY rowid;

-- name: insert_hook
INSERT INTO hooks (id, organization, url, token, signed, events)
VALUES (:id, :organization, :url, :token, :signed, :events);

-- name: delete_hook
DELETE FROM hooks WHERE id = :hook;

-- name: drop_all
UPDATE deliveries SET body = NULL, failure = 'the webhook was removed' WHERE hook = :hook AND body IS NOT NULL;

-- name: drop_oldest
UPDATE deliveries SET body = NULL, failure = 'dropped: too many pending deliveries'
WHERE hook = :hook AND body IS NOT NULL AND seq <= (
    SELECT seq FROM deliveries WHERE hook = :hook AND body IS NOT NULL ORDER BY seq DESC LIMIT 1 OFFSET :pending
);

-- name: delete_oldest
DELETE FROM deliveries
WHERE hook = :hook AND body IS NULL AND seq <= (
    SELECT seq FROM deliveries WHERE hook = :hook AND body IS NULL ORDER BY seq DESC LIMIT 1 OFFSET :settled
);

-- name: insert_delivery
INSERT INTO deliveries (id, hook, url, event, at, body, due, attempts)
VALUES (:id, :hook, :url, :event, :at, :body, :due, 0);

-- name: find_next_pending
SELECT seq, id, event, body, attempts, due FROM deliveries
WHERE hook = :hook AND body IS NOT NULL ORDER BY seq LIMIT 1;

-- name: record_attempt
-- A delivery that was dropped during a failed attempt stays dropped.
UPDATE deliveries SET
    body = CASE WHEN :again IS NOT NULL THEN body END,
    attempts = attempts + 1,
    status = :status,
    failure = CASE WHEN body IS NULL AND :failure IS NOT NULL THEN failure ELSE :failure END,
    delivered = CASE WHEN :failure IS NULL THEN :now END,
    due = coalesce(:again, due)
WHERE seq = :seq;

-- name: list_deliveries
SELECT id, hook, url, event, at, attempts, body IS NOT NULL AS pending, status, failure,
    CAST(delivered * 1e6 AS INTEGER) AS delivered_at
FROM deliveries ORDER BY seq;
