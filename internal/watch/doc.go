// Package watch wakes watchers and passes messages to them. Broadcast says that there is something new. Hub passes on
// live messages of runs. The sender never waits for a watcher.
package watch
