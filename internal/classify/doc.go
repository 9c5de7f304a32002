// Package classify asks the site's own script, its external node classifier (ENC), about each node, and hands the answers
// to the server (ADR 0040). The script runs on the server's machine as the server's user, with bounds for time, output and
// number.
package classify
