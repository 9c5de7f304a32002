// Package collect gathers what package doctor looks at: the files, processes, locks and connections of this machine. It
// changes nothing. The caller says where the directories of server, agent and operator are.
package collect

import "time"

// Timeout bounds each question to a server, so that doctor ends even if no server answers.
const Timeout = 5 * time.Second

const day = 24 * time.Hour
