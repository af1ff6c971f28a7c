//go:build !linux

package process

import "net"

func (l *links) offerShared(net.Conn) (sender, error) { return nil, refusal("only on Linux") }

func (l *links) answerShared(net.Conn, *offer) (receiver, error) {
	return nil, refusal("only on Linux")
}
