package lab

// Names of the outer machine on every host.
const (
	outerName  = "outer"
	serverName = "tutti-server"
)
