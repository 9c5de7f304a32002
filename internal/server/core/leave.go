package core

import (
	"time"

	"github.com/tutti-project/tutti"
)

// leaveGrace is how long the connection of a node that has left stays: its end
// would overtake the answer.
const LeaveGrace = 2 * time.Second

// Leaver is a key that is no node's any more and is to be ended.
type Leaver struct {
	Key tutti.NodeKey
	At  time.Time
}
