-- A name may be had by one project after the other: each is shown its own lines only.
ALTER TABLE deployment_revisions ADD COLUMN project text NOT NULL DEFAULT '';
ALTER TABLE deployment_history ADD COLUMN project text NOT NULL DEFAULT '';
UPDATE deployment_revisions v SET project = d.project FROM deployments d WHERE d.name = v.deployment AND d.uid = v.uid;
UPDATE deployment_history h SET project = d.project FROM deployments d WHERE d.name = h.deployment AND d.uid = h.uid;
UPDATE deployment_revisions v SET project = o.project FROM objects o WHERE o.kind = 'deployment' AND o.uid = v.uid;
UPDATE deployment_history h SET project = o.project FROM objects o WHERE o.kind = 'deployment' AND o.uid = h.uid;
