package leases

import "context"

// WriteBatches writes what is gathered until the context ends.
func WriteBatches(ctx context.Context, s *Service) { s.writeBatches(ctx) }
