# frozen_string_literal: true

require 'fileutils'
require 'tmpdir'
require_relative 'certificates'

# A file that a process reads once, as those below /etc are, which may be changed; perhaps by way of another one.
class SystemFiles
  # An openssl.cnf whose protocol another file says.
  OPENSSL = "openssl_conf = init\n.include %s\n[init]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n"

  AUTHORITY = Certificates.make('authority').certificate.to_pem

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
