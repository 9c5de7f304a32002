// Package watch wakes and tells those who watch: Broadcast says that there is something new, Hub passes on what happens inside runs.
// Nobody who is told anything is waited for.
package watch
