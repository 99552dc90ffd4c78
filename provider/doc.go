// Package provider connects a program to a Holdfast region, so that the region can call the program's modules.
//
// A provider registers, keeps one stream open for heartbeats, and serves executions of its modules:
//
//	executor, err := provider.NewExecutor(provider.ExecutorOptions{Modules: modules})
//	link, err := provider.New(provider.Options{
//		Address: "region:9090", Name: "vision-1", ModuleNamespace: "acme.vision",
//		ExecutorAddress: "10.0.0.7:9091", Executor: executor, Token: token,
//	})
//	go executor.Serve(ctx, listener)
//	err = link.Run(ctx)
//
// One InstanceConnection is a connection to one server instance. A program that serves several regions has one
// for each; they may share an Executor. Each reconnects on its own:
//
//	              ┌────────────── lost, or not reached: wait 1 s to 60 s ─────────────┐
//	              ▼                                                                   │
//	Connecting ──────▶ Active ──────▶ Draining ──────▶ Closed: Run returns            │
//	     │  register,    │  drain asked     in flight is zero,                        │
//	     │  open stream  │                  or the deadline                           │
//	     └───────────────┴────────────────────────────────▶ Disconnected ─────────────┘
//
// Each registration is a new connection with a new id; an old id is never used again. The region counts a
// connection as lost when it has received nothing for its timeout (15 s), and so does this package when
// heartbeats are not answered for as long.
package provider
