// Package collect gathers the facts that package doctor examines. The facts are about the files, processes, locks and
// connections of this machine. The package changes nothing. The caller passes the directories of server, agent and
// operator.
package collect

import "time"

// Timeout bounds each question to a server, so that doctor ends even if no server answers.
const Timeout = 5 * time.Second

const day = 24 * time.Hour
