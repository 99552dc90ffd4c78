-- The node that refused; '' is the region.
ALTER TABLE refusals ADD COLUMN refused_by text NOT NULL DEFAULT '';
