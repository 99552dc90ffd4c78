package leases

import "context"

// WaitLater returns when no tick waits for a busy vote.
func WaitLater(s *Service) { s.later.Wait() }

// WriteBatches writes what is gathered until the context ends.
func WriteBatches(ctx context.Context, s *Service) { s.writeBatches(ctx) }
