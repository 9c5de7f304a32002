# frozen_string_literal: true

require 'fileutils'
require 'tmpdir'
require_relative 'certificates'

# A SystemFiles is a file that a process reads only once, like the files below /etc. The examples may change
# this file. Another file may refer to this file.
class SystemFiles
  # OPENSSL is an openssl.cnf that includes another file, which sets the protocol.
  OPENSSL = "openssl_conf = init\n.include %s\n[init]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n"

  AUTHORITY = Certificates.make('authority').certificate.to_pem

  # `first` is the file that is read, and `last` is the file that changes.
  attr_reader :first, :last

  # @param text [String, nil] the text of the first file, with %s in place of the second file's name; nil if there is
  #   only one file
  def initialize(text = nil)
    @dir = Dir.mktmpdir('tutti-system')
    @first = @last = File.join(@dir, 'first')
    return if text.nil?

    @last = File.join(@dir, 'last')
    File.write(@first, format(text, @last))
  end

  # Writes a new file with the same name, like a package or an editor.
  def write(text)
    File.binwrite("#{@last}.new", text)
    File.rename("#{@last}.new", @last)
  end

  def clean
    FileUtils.rm_rf(@dir)
  end
end
