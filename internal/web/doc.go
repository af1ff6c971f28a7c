// Package web is what the HTTP servers of this program share: where they listen and how many
// connections they take (listen.go), how long a client may take to send a request (server.go),
// which pages of other sites may ask (guard.go), and how a page is put together (page.go, shared.js).
package web
