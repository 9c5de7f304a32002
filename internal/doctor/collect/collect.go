// Package collect gathers what package doctor looks at: the files, processes, locks and connections of this machine. It
// changes nothing. Who calls it says where the server, the agent and the operator live.
package collect

import "time"

// Timeout bounds each question to a server, so that doctor ends also where no server answers.
const Timeout = 5 * time.Second

const day = 24 * time.Hour
