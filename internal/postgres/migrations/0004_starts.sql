-- A start that is a rollout (docs/rollouts.md).

-- The revision that ran last as it was to, and to which a rollout that starts what does not run returns; NULL for none. A server
-- of the build before does not set it.
ALTER TABLE deployments ADD COLUMN stable bigint;
UPDATE deployments SET stable = revision WHERE state = 'RUNNING' AND target > 0 AND revision > 0;
-- The state of the deployment in which it began; PENDING also with a target of 0: nothing was to run.
ALTER TABLE rollouts ADD COLUMN began_in text NOT NULL DEFAULT 'RUNNING' CHECK (began_in IN ('PENDING', 'PROVISIONING', 'RUNNING', 'ERROR'));
