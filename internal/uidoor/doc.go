// Package uidoor is the door of `tutti ui`: a web server on a loopback address, for the browser of one operator. The door
// sends the page to the browser, and passes reading calls on to the server with the operator's certificate. A browser
// needs a secret for each call. The browser gets this secret once, for a code that is valid for a minute (ADR 0045).
package uidoor
