package api

import "github.com/tutti-project/tutti"

// Picture is the graph of a fleet as it is drawn (ADR 0044). Nodes that ask and publish the same are one box. All places
// are in pixels. All texts are one line each, without control characters.
type Picture struct {
	W      int            `json:"w"`
	H      int            `json:"h"`
	Boxes  []PictureBox   `json:"boxes"`
	Edges  []PictureEdge  `json:"edges"`
	Frames []PictureFrame `json:"frames,omitempty"`
	Nodes  int            `json:"nodes"` // in all boxes
	// Coarse is true if there would be too many boxes. Then all questions about one type, or about keys with the same first
	// part, count as the same question.
	Coarse bool `json:"coarse,omitempty"`
}

// PictureBox is a box: nodes that ask and publish the same.
type PictureBox struct {
	// ID is the same in each picture of the same target, as long as the nodes of the box ask and publish the same.
	ID     string         `json:"id"`
	Name   string         `json:"name"`  // of a node, or of a group that all the nodes are in, or of a node with "and others"
	Title  string         `json:"title"` // the first line of the box: the name, cut if it is long, with the count
	Count  int            `json:"count"`
	Of     int            `json:"of,omitempty"` // if the name is of a group: how many nodes the group has
	States []PictureState `json:"states"`       // at most PictureRow states are in one line of the box
	// Note is the last line of the box if it is not empty. It says why the box has no edge.
	Note  string           `json:"note,omitempty"`
	Nodes []tutti.NodeName `json:"nodes"` // the first MaxPictureNodes nodes by name
	X     int              `json:"x"`
	Y     int              `json:"y"`
	W     int              `json:"w"`
	H     int              `json:"h"`
}

// The constants bound a picture.
const (
	PictureRow       = 3  // states in one line
	MaxPictureNodes  = 40 // names in a box
	MaxPictureAsked  = 40 // questions of an edge
	MaxPictureLabels = 3  // questions in a label
)

// PictureState says how many nodes of a box have a state.
type PictureState struct {
	State NodeState `json:"state"`
	Count int       `json:"count"`
}

// PictureKind says what an edge is made of.
type PictureKind string

// These are the kinds of edges.
const (
	PictureHard  PictureKind = "hard"  // values, which exist when the publishing node has applied
	PictureSoft  PictureKind = "soft"  // exports, which exist when the exporting node has compiled
	PictureOrder PictureKind = "order" // `order` of the fleet file
)

// PictureEdge leads from a box whose nodes publish to a box whose nodes ask.
type PictureEdge struct {
	From string      `json:"from"` // ids of boxes
	To   string      `json:"to"`
	Kind PictureKind `json:"kind"`
	// Questions are the first MaxPictureAsked questions. A name of a node in them is replaced by `*` if the edge has the
	// question also with other names.
	Questions []string `json:"questions,omitempty"`
	More      int      `json:"more,omitempty"` // questions that are not in Questions
	// Label has the lines of the label. An edge from a box to itself has no label; the caption of its frame names the
	// questions.
	Label  []string `json:"label,omitempty"`
	X      int      `json:"x"` // the place of the label
	Y      int      `json:"y"`
	W      int      `json:"w"`
	H      int      `json:"h"`
	Points [][2]int `json:"points"`
}

// PictureFrame surrounds the boxes of one cycle: nodes that read from each other. The caption is at its top.
type PictureFrame struct {
	Boxes   []string `json:"boxes"` // ids
	Caption []string `json:"caption"`
	X       int      `json:"x"`
	Y       int      `json:"y"`
	W       int      `json:"w"`
	H       int      `json:"h"`
}
