# frozen_string_literal: true

require 'fileutils'
require 'openssl'
require 'tmpdir'

# A file that a process reads once, as those below /etc are, which may be changed; perhaps by way of another one.
class SystemFiles
  # An openssl.cnf whose protocol another file says.
  OPENSSL = "openssl_conf = init\n.include %s\n[init]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n"

  AUTHORITY = OpenSSL::X509::Certificate.new.tap do |certificate|
    key = OpenSSL::PKey::EC.generate('prime256v1')
    certificate.version = 2
    certificate.serial = 1
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse('/CN=authority')
    certificate.public_key = key
    certificate.not_before = Time.now - 3600
    certificate.not_after = Time.now + 86_400
    factory = OpenSSL::X509::ExtensionFactory.new(certificate, certificate)
    certificate.add_extension(factory.create_extension('basicConstraints', 'CA:TRUE', true))
    certificate.sign(key, OpenSSL::Digest.new('SHA256'))
  end.to_pem

  # The one that is read, and the one that changes.
  attr_reader :first, :last

  # @param text [String, nil] of the first one, with a place for the other one's name; nil: there is one only
  def initialize(text = nil)
    @dir = Dir.mktmpdir('tutti-system')
    @first = @last = File.join(@dir, 'first')
    return if text.nil?

    @last = File.join(@dir, 'last')
    File.write(@first, format(text, @last))
  end

  # As a package and an editor write: another file of the same name.
  def write(text)
    File.binwrite("#{@last}.new", text)
    File.rename("#{@last}.new", @last)
  end

  def clean
    FileUtils.rm_rf(@dir)
  end
end
