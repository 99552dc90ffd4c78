// Package tasks is the link's restricted access to Temporal: through it a node polls and answers the activity tasks
// of its queue, and nothing else.
//
//	node ── poll ──▶ tasks.Server ── poll ──▶ Temporal
//	  ▲                  │ identity, namespace and queue are the server's to say
//	  └── token+MAC ◀────┘ a task token comes back only from the node that it was given to
//
// What "nothing else" rests on:
//
//   - Only the methods of methods() are registered; any other one ends in Server.Unknown.
//   - Each request that goes to Temporal is made anew from the few members that a node has a
//     say in. A member that is not copied here, or that a later version adds, goes nowhere.
//   - Task tokens carry a MAC over (node, token) under a secret that all servers of the region
//     share, so a token is worth nothing to another node, through whichever server it comes.
//
// Who calls is proven before a call arrives here (Options.Identity). Every refusal is written
// down for an auditor (Options.Refuse).
package tasks
