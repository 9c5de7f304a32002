# frozen_string_literal: true

require 'openssl'

# Creates an authority, and a certificate of this authority for a node.
module Certificates
  Pair = Struct.new(:certificate, :key)

  # @param issuer [Pair, nil] the authority; nil makes an authority that signs itself
  # @return [Pair]
  def self.make(name, issuer = nil)
    certificate = OpenSSL::X509::Certificate.new
    pair = Pair.new(certificate, OpenSSL::PKey::RSA.new(2048))
    fill(certificate, name, pair.key, (issuer || pair).certificate)
    extensions = OpenSSL::X509::ExtensionFactory.new((issuer || pair).certificate, certificate)
    certificate.add_extension(extensions.create_extension('basicConstraints', issuer ? 'CA:FALSE' : 'CA:TRUE', true))
    certificate.sign((issuer || pair).key, OpenSSL::Digest.new('SHA256'))
    pair
  end

  def self.fill(certificate, name, key, issuer)
    certificate.version = 2
    certificate.serial = rand(1..(1 << 60))
    certificate.subject = OpenSSL::X509::Name.parse("/CN=#{name}")
    certificate.issuer = issuer.subject
    certificate.public_key = key
    certificate.not_before = Time.now - 3600
    certificate.not_after = Time.now + 86_400
  end
  private_class_method :fill
end
