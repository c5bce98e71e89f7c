// Package deadletter keeps the ledger of dead letters, shows them to people, and brings them back.
//
// A letter is in the ledger, and somebody is to be told of it, before it is acknowledged. A late copy of
// one that has been redriven or resolved since changes nothing, and one of an account that was unlinked
// is not kept.
//
// A letter that is brought back is claimed before, so that of two who redrive it one does; it counts as
// redriving only after Pub/Sub has confirmed it. What an operator does is recorded before it is begun,
// letter by letter. On the -inspect subscriptions stays only what is open.
package deadletter
